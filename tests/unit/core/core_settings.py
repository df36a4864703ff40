"""How hard hypothesis tries: enough to find a planted bug, the same examples in every run."""
from hypothesis import HealthCheck, settings

# A failure found here is found by everybody; to search further, raise `max_examples` and drop `derandomize`.
THOROUGH = settings(
    max_examples=200,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
QUICK = settings(THOROUGH, max_examples=60)

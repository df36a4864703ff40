"""What every test may rely on, however the run itself was started."""
import signal

from hypothesis import HealthCheck, settings

# How long an example takes says something of the machine, which may be busy, and nothing of what is tested.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

# A shell starts what it puts into the background with Ctrl-C ignored, and every process started from there inherits
# that: a test that interrupts a command would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)

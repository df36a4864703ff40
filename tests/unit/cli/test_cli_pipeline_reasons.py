"""Goal: when a task of Spark's fails, a person is told why, in a sentence and not in pages."""
from angarium.cli.pipeline import reason_of

JAVA = "".join(f"\tat org.apache.spark.Some$Class{number}.method(Some.scala:{number})\n" for number in range(500))


def test_what_our_tasks_say_is_told() -> None:
    text = (
        "An error occurred while calling o61.parquet.\n: org.apache.spark.SparkException: Job aborted.\n"
        f"{JAVA}Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
        '  File "/x/reading.py", line 70, in _pages\n    raise lost(gone.reason)\n'
        "angarium.core.errors.Rejected: 'orders': positions 2 to 3 are damaged. Some messages may be missing\n\n"
        f"{JAVA}"
    )
    assert reason_of(text) == "'orders': positions 2 to 3 are damaged. Some messages may be missing"


def test_what_spark_says_is_cut() -> None:
    told = reason_of(f"An error occurred while calling o61.parquet.\n: java.io.IOException: No space left\n{JAVA}")
    assert told.startswith("Spark failed: An error occurred while calling o61.parquet. java.io.IOException: No space")
    assert len(told) < 700 and "Some$Class" not in told

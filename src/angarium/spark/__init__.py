"""Angarium as a source and a sink of Spark: `spark.read`, `readStream`, `df.write`, `writeStream`, format `angarium`.

    options    what a user may say, checked
    offsets    how far a query is: for each destination its id, and one position for each priority that was used
    planning   which positions a batch has, and which task reads which of them
    pushdown   what Spark's filters allow to leave out
    metadata   what the broker's logs hold, asked seldom
    reading    a task: from pages of a log to Arrow record batches
    losing     what is told when messages are gone
    columns    batches as columns
    source     what Spark calls

    sink           what Spark calls to write: tasks stage, the driver commits
    sink_options   what a user may say when he writes
    rows           rows as messages

Install it with `pip install '.[spark]'`. Of Angarium only the command
line imports this package, for `angarium pipeline` (`pipelines`).
"""

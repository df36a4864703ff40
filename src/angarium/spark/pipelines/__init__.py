"""Pipelines over Spark, as `angarium pipeline NAME` runs them. Each can be ended at any time, and started again.

    session     a Spark session for a command
    places      where the logs are, asked as a client; which of them a list of names and globs means
    manifest    what an archive holds: one JSON file, replaced as a whole
    files       the files of an archive, made to agree with its manifest
    archive     destinations to Parquet
    traces      trace records as rows
    judging     what became of every message
    audit       the delivery audit; audit_report is its page, plots what is drawn there
    replay      Parquet back into destinations
    traffic     what flows where; traffic_report is its page
    compaction  few large files from many small ones
"""

"""The demo: real servers, the agent, and Spark queries on records that no broker has any more.

`make demo`, or `python -m dev.demo`. The files, in the order of the demo:

    __main__      the command: size, exit status
    ending        signals
    acts          the whole demo, act by act; read this first
    records       the records
    producing     three producers, one codec each
    journal       the acknowledged records, as Parquet files
    shipping      the progress of the store, read from the store
    query         the Spark program, in its own process; it reads the store and the journal, and no broker
    spark_runner  starts the Spark program and reads its answers
    answers       shows and checks the answers
    doors         SQL, a table, a Kafka client and a drill, each by a command that a user can repeat
    screen        terminal or plain lines
"""

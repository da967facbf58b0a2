"""The demo: real servers, the agent, and Spark answering from history that no broker holds any more.

`make demo`, or `python -m ts_local.demo`. The files, in the order in which the demo tells them:

    __main__    the command: size, exit status
    ending      signals
    acts        the whole story, act by act; read this first
    records     what is produced
    producing   three producers, one codec each
    journal     what was produced and acknowledged, as Parquet files
    shipping    how far the store is, asked of the store
    query       the Spark program, in a process of its own; it knows the store and the journal, no broker
    asking      starts it and takes its answers
    screen      terminal or plain lines
"""

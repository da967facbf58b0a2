"""A fleet of agents on a simulated clock: their real tracker, queues, uploader, commits and gate of requests.

The clusters, the store and the time are simulated (`fleet`, `cloud`, `clock`). A segment is a file of one batch in a
directory that all partitions with the same leader epochs share (`log_files`). Its size is a figure of the scenario.
"""

"""Retention of the store, `tsctl gc`: what is due, hidden by `log.start` and deleted after a grace (docs/protocol.md).

::

    policy, policy_source      the file, or the Java uploader's keys; and whether it fits the archive
    policy_retention           answers for each topic and partition: rule, readers (`needed`), holds, what is over
    archive_run                each store of an archive: a run, a dry run, an undo; what they print, and `metrics`
    run                        one store: each step that is due, then the fuse, then what is newly due is hidden
      incarnations             the topics of a store, with former incarnations and old places
      partition                one partition: the table of steps
      ended                    one partition of an incarnation that is over
        due, objects           what is due by a view, pure; what can be deleted, and the order
    report                     what a run did, for people
    checks                     what a store and an identity can do, before the first run
"""

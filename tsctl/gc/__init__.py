"""Retention of the store, `tsctl gc`: what is due, and its deletion in two phases (docs/protocol.md, Retention).

::

    policy, java_policy        the file, or the Java uploader's keys; `policy_source` chooses
    policy_retention           answers for each topic and partition: rule, readers (`needed`), holds, what is over
    archive_run                each store under a `lease`, then old objects of its own (`own_objects`)
    run                        one store: a plan that is due, else a survey and the next plan
      survey                   phase 0: what is due in each partition; it writes nothing
      planning                 phase 1: move `log.start` (`moving`), list again, write the plan
                               (`still_hidden`: what earlier runs hid, and no run began to delete)
      deletion                 phase 2: what the plan names and is still due; `deletion_log` has what became of it
      undo                     between the phases: `log.start` goes back
      showing                  in phase 2: it goes back for a partition under a hold
    examination                one partition at one moment: `due` and `removable` decide, both pure
    over                       one partition of an incarnation that is over
    checks                     what a store and an identity can do, before the first run
    waiting                    for a dry run: what a plan that waits has already
    reporting, metrics         what a run prints and measures; `listing`: the rows of all runs
"""

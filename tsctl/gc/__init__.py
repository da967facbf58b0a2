"""Retention of the store, `tsctl gc`: what is due, and its deletion in two phases (docs/protocol.md, Retention).

::

    policy, java_policy        the file, or the Java uploader's keys
    policy_retention           answers for each topic and partition: rule, readers (`needed`), holds, what is over
    archive_run                each store under a `lease`, then old objects of its own (`own_objects`)
    run                        one store: a plan that is due, else a survey and the next plan
      survey                   phase 0: what is due in each partition; it writes nothing
      planning                 phase 1: move `log.start` (`moving`), list again, write the plan
      deletion                 phase 2: what the plan names and is still due
      undo                     between the phases
    examination                one partition at one moment: `due` and `removable` decide, both pure
    over                       one partition of an incarnation that is over
    checks                     what a store and an identity can do, before the first run
    reporting, metrics         what a run prints and measures; `listing`: the rows of all runs
"""

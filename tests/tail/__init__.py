"""Random histories of the live tail: brokers, agents, a store with late and lost answers, readers, a stream.

An agent, a reader and a collector are generators: each single operation of one is a step, and any order of steps can
happen. A put can succeed late, or without an answer. `clauses` has what the model can drop, each with its
counterexample; `directed` has the histories that random ones seldom find.
"""

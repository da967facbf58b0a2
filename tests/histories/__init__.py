"""The tracker and the commit against a model of several brokers, history by history."""

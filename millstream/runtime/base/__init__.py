"""What everything else in the runtime rests on: the clock, the reading of bytecode, how failures are told of.

Imports no other package of the runtime. Of operators it knows the node of the graph that a failure is told of, of state
the protocol of a table's index."""

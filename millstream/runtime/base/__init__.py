"""What everything else in the runtime rests on: the clock, the reading of bytecode, how failures are told of.

Nothing here knows of records, state or operators."""

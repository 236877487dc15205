"""Where files of a job lie: a local folder or a URL, with names that appear whole or not at all, and seals.

Knows bytes and names; what is in the files is the business of `millstream.checkpoint`."""

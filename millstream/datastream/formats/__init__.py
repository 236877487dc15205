"""Formats of messages and files, module by module as in PyFlink."""

"""The `lmdb` backend: state on the worker's disk, in environments that several stores share."""

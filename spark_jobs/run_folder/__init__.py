"""The folder of a run: names, marks of its drivers, copying to and from remote storage."""

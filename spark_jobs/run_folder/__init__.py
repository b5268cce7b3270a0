"""Run folders: file names, marks of drivers, copies to and from remote storage."""

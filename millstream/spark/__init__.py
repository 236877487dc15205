"""The only package that imports PySpark: it turns a level plan into a frame and runs it."""

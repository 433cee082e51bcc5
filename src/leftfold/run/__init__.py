"""Run and supervise the views of a project in one Spark application."""

"""The ``rmqha`` data source for Spark and the replay job, on one decoder core that knows no Spark."""

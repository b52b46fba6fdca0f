"""A journal's records as columns: for Parquet, for Spark, for anything that reads Arrow."""

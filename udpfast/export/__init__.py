"""A journal's records as columns: for Parquet, Spark, and every program that reads Arrow."""

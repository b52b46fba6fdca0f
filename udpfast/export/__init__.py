"""What a journal says, in columns: for Parquet, for Spark, for whoever has Arrow."""

"""What lies beside the records of an instance or a journal, so that others can read them."""

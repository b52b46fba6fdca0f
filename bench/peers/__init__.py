"""What others offer for the same work, each behind the same face, and the C floor below all."""

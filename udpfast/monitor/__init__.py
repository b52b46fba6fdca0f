"""What is known of an instance, live or dead: facts as frozen structs, which others draw."""

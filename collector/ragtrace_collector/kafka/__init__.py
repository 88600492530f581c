"""What all that uses Kafka shares: the texts of its errors, and whether topics are as they must be."""

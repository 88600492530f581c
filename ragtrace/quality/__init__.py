"""What a sample of judged answers says about all traffic: estimates with intervals, by group."""

"""Events to vocabulary and SeqSet shards, the same for every source."""

"""What a plan has of its members: the cards of parts, and words that are known late."""

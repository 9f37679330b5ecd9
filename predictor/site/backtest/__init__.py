"""Replays past or generated jobs under other time limits: what each policy of limits would do."""

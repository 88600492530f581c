"""Tells a changed judge from a changed system: the same labeled answers, judged again and again."""

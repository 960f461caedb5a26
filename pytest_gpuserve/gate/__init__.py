"""What decides over a case: statistics over launches, stored launches, the verdict.

Nothing is imported here, and numpy and scipy only inside functions: a run pays for them when it first judges.
"""

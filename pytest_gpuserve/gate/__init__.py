"""What decides over a case: statistics over launches (`stats`), stored launches (`baseline`), the verdict (`verdict`).

Nothing is imported here, and numpy and scipy only where they are used: the plugin pays for the gate when it judges.
"""

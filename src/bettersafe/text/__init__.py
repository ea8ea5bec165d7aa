"""One wording for the terminal, the report, the explorer and JSON.

numbers    numbers, shares and probabilities as people read them
names      labels, lists of names, grades, what became of a candidate
headlines  what a run comes to: the decision, why, on what evidence, and what to do next
"""

"""One wording for the terminal, the report, the explorer and JSON.

numbers    numbers, shares and probabilities, rounded for reading
names      labels, lists of names, grades, outcomes of candidates
gains      gains in people's speech: labels, percent or units
tones      colours by meaning: passed, refused, proposed, open
headlines  summary of a run: the decision, its reason, the evidence and the next step
"""

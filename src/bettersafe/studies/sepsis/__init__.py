"""The sepsis study, on the ICU-Sepsis benchmark and on MIMIC-III."""

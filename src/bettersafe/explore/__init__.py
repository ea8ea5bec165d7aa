"""The trade-off explorer: a local page with sliders for the preference, which shows returns, posterior and changed decisions.

`session` holds the counts, model and priors, `answers` makes the JSON documents about a policy, `keeping` saves runs, `requests`
parses requests, `server` is the local server. The page consists of explore.html, explore.css and explore.js.
"""

"""The trade-off explorer: a local page on which people move the preference and see what it costs and what is believed.

`session` has what is made once, `answers` what is said of a policy, `keeping` the run that is saved, `requests` what a page may
ask, `server` the local server; the page is three files: explore.html, explore.css and explore.js.
"""

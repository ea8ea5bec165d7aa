"""The trade-off explorer: a local page on which people move the preference and see what it costs and what is believed.

`session` has the answers (settings in, a JSON document out; no HTTP), `server` the local server, and the page is three
files: explore.html, explore.css and explore.js.
"""

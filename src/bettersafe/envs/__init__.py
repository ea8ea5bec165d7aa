"""Environments with a known true MDP, so that results can be checked exactly.

tabular     World: a finite environment, its true MDP, and logs drawn from it
random_mdp  random worlds (Garnets)
benchmarks  public benchmarks as worlds: FrozenLake, Taxi, deep sea treasure and others
hazards     worlds that are difficult to learn from: rare harm, rare or noisy rewards
operations  stock, queues, machines, a shop, a clinic
routes      ways with rare harm: mined roads, icy passes, rope bridges
care        doses, transfers, an epidemic, a tutor
trade       prices, advertisements, lotteries, a reservoir, heating, bus engines, a fishery
services    queues in tandem, a shop floor, grants
city        a ferry, a tram line, a market cart, a car park, a desk for patients, debts
works       products, crops, a greenhouse, a kiln, a long building
business    a sales funnel, donors, an exchange, a street stall, a restaurant, a help desk
country     sea lanes, an apiary, a brewery, a water mill, a pasture
people      prescriptions, hotel guests, lawsuits, a ward, readers of headlines, members of a club
firms       an insurer, pumps, a baking line, crews, faults of machines
clients     chats, exercises, mail order, headaches, a portal, rides
land        wells, fields, a lake, the fruit tree
gridworld   gridworlds with pits
icu_sepsis  ICU-Sepsis: a simulator of sepsis treatment, and its clinicians' policy
gym         Gymnasium environments of these worlds, and logs of any Gymnasium environment; needs the extra 'gym'
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

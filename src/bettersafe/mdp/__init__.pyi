from .constrained import CMDPOptimum as CMDPOptimum
from .constrained import cmdp_optimum as cmdp_optimum
from .constrained import optimal_policy as optimal_policy
from .mdp import MDP as MDP
from .mdp import dense_mdp as dense_mdp
from .values import expected_return as expected_return
from .values import occupancy as occupancy
from .values import policy_values as policy_values

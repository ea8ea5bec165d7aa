// Strength of the hierarchical prior; the formula of `strengths` in Python.
#pragma once

namespace bettersafe {

struct Strengths {
    double prior;  // w: weight of the counts of all pairs of the state, including the pair itself
    double own;    // additional weight of the pair's own counts
};

// The other pairs of a state give the prior mean m, estimated from `others` visits. With p ~ Dirichlet(c m) and m ~ Dirichlet of
// that mass, p has the variance of a Dirichlet of mass c̃, 1/(c̃+1) = 1/(c+1) + c/(c+1) · 1/(others+1); w = c̃ / others. Since w
// also weights the pair's own counts, these get another 1 − w. Without other visits, it is a plain Dirichlet: w = c, own = 1.
inline Strengths strengths(double c, double others) {
    if (!(others > 0.0)) return {c, 1.0};
    const double w = (1.0 / (1.0 / (c + 1.0) + c / ((c + 1.0) * (others + 1.0))) - 1.0) / others;
    return {w, 1.0 - w};
}

}  // namespace bettersafe

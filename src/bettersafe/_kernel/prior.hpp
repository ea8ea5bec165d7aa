// The strength of the hierarchical prior: the same formula as `strengths` in Python.
#pragma once

namespace bettersafe {

struct Strengths {
    double prior;  // w: weight of what the state's pairs saw, its own counts among them
    double own;    // weight of the pair's own counts beside that
};

// The other pairs of a state give the prior mean m, known from `others` visits alone. With p ~ Dirichlet(c m) and m ~ Dirichlet of
// that mass, p has the variance of a Dirichlet of mass c̃, 1/(c̃+1) = 1/(c+1) + c/(c+1) · 1/(others+1); w = c̃ / others. Since w
// weighs the pair's own counts too, 1 − w is left for them. Without others it is a plain Dirichlet: w = c, own = 1.
inline Strengths strengths(double c, double others) {
    if (!(others > 0.0)) return {c, 1.0};
    const double w = (1.0 / (1.0 / (c + 1.0) + c / ((c + 1.0) * (others + 1.0))) - 1.0) / others;
    return {w, 1.0 - w};
}

}  // namespace bettersafe

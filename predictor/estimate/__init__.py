"""From physics to an answer: residual, intervals, fitting, stored predictors, the Prediction."""

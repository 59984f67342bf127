"""The hybrid generative-discriminative latent-variable model."""

"""The numpy reference: the same models on the CPU, sharing no arithmetic with the guest."""

from pagelm.host.oracle.model import Oracle as Oracle

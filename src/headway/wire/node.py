"""What does the gateway tell a node about a request's quality of service?

One convention serves the embedded engine and vLLM alike: the header `X-Vllm-Priority` (lower is
sooner), and in the body `cache_salt` (vLLM's own) and `vllm_xargs` with our keys below. All are
derived from the authenticated caller; what a client sent under these names never gets through.
"""

PRIORITY_HEADER = "x-vllm-priority"
REQUEST_ID_HEADER = "x-request-id"

XARG_TENANT = "headway_tenant"
XARG_WEIGHT = "headway_weight"
XARG_DEADLINE_S = "headway_deadline_s"

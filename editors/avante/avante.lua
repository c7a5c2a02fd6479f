-- avante.nvim: put this into your configuration, then :AvanteAsk
require("avante").setup({
  provider = "acp_bridge",
  acp_providers = {
    acp_bridge = {
      command = "acp-bridge",
      args = { "--model", "demo" },
      env = {},
    },
  },
})

-- CodeCompanion.nvim: put this into your configuration, then :CodeCompanionChat adapter=acp_bridge
require("codecompanion").setup({
  adapters = {
    acp = {
      acp_bridge = function()
        local helpers = require("codecompanion.adapters.acp.helpers")
        return {
          name = "acp_bridge",
          formatted_name = "ACP Bridge",
          type = "acp",
          roles = { llm = "assistant", user = "user" },
          commands = { default = { "acp-bridge", "--model", "demo" } },
          defaults = { mcpServers = {}, timeout = 20000 },
          parameters = {
            protocolVersion = 1,
            clientCapabilities = { fs = { readTextFile = true, writeTextFile = true } },
            clientInfo = { name = "CodeCompanion.nvim", version = "1.0.0" },
          },
          handlers = {
            setup = function() return true end,
            auth = function() return true end,
            form_messages = function(self, messages, capabilities)
              return helpers.form_messages(self, messages, capabilities)
            end,
            on_exit = function() end,
          },
        }
      end,
    },
  },
})

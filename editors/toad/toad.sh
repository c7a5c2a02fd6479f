toad acp "acp-bridge --model demo" . --title "ACP Bridge"
